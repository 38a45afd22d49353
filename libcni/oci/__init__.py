"""CNI as a hook of OCI runtimes: runc, crun, youki, and what builds on them.

The command ``libcni oci-hook`` is a thin layer over this package. Importing it is light: a hook runs at every start and
every end of a container.
"""
