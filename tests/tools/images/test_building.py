from tools.images.building import configuration
from tools.images.compose import Health


def test_an_images_configuration_is_read() -> None:
    image = configuration(
        {
            "Entrypoint": ["relaxd"],
            "Cmd": ["api", "--port", "8484"],
            "Env": ["PATH=/opt/relaxd/bin:/usr/bin", "EQUAL=a=b"],
            "Volumes": {"/var/lib/relaxd": {}},
            "Labels": {"org.opencontainers.image.title": "relaxd-api"},
            "Healthcheck": {"Test": ["CMD", "true"], "Interval": 10_000_000_000, "Retries": 3},
        }
    )
    assert image.command == ("relaxd", "api", "--port", "8484")
    assert image.environment == {"PATH": "/opt/relaxd/bin:/usr/bin", "EQUAL": "a=b"}
    assert image.volumes == ("/var/lib/relaxd",)
    assert image.health == Health(("true",), 10.0, 3)
