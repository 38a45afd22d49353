"""The kernel, as this library asks it: system calls, namespaces, links, packet-filter rules."""
