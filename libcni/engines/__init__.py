"""Common code of the programs that a container engine starts: the hook of OCI runtimes, and the driver of podman.

Both start with every container, so each module imports only what every run needs.
"""
