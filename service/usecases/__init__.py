"""The use cases of the service, one a module: functions over `service.core.Core`."""
