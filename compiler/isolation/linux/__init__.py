"""What Linux offers to confine a process: namespaces, Landlock, seccomp, cgroups, quotas."""
