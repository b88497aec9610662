"""Linux's means to confine a process: namespaces, Landlock, seccomp, cgroups, quotas."""
