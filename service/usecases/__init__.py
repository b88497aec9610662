"""What the service can do with jobs, one use case a module; each is a function over
`service.core.Core`.
"""
