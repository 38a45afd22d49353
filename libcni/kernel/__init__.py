"""Access to the kernel: system calls, namespaces, links, packet-filter rules."""
