"""`relaxd models` against a service, and `relaxd pull NAME@ALIAS`."""


def build(served, dim):
    compiled = served("compile", "net.onnx", "--dim", f"n={dim}", "--json")
    return compiled.json["id"]


def test_a_name_an_alias_that_moves_and_a_pull_by_it(served, model):
    first, second = build(served, 1), build(served, 2)
    registered = served("models", "register", "minilm", "--job", first, "--label", "commit=1d")
    assert registered.out.startswith("minilm@1: sha256:")
    assert served("models", "alias", "minilm", "prod", "1").out == "minilm@prod is version 1\n"
    served("models", "register", "minilm", "--job", second, "--notes", "smaller")
    moved = served("models", "alias", "minilm", "prod", "latest")
    assert moved.out == "minilm@prod is version 2 (was 1)\n"
    assert served("models", "describe", "minilm", "--project", "search").code == 0
    listed = served("models", "list", "--project", "search").out.splitlines()
    assert listed[1].split() == ["minilm", "search", "2", "prod=2"]
    shown = served("models", "show", "minilm").out
    assert "commit=1d" in shown
    assert "smaller" in shown
    for ref, digest in (("minilm@prod", second), ("minilm@1", first)):
        pulled = served("pull", ref, "-o", "by-name", "--json")
        assert pulled.code == 0, pulled.err
        name = served("pull", digest, "-o", "by-job", "--json")
        assert pulled.json["size"] == name.json["size"]
    gone = served("pull", "minilm@canary", "-o", "by-name")
    assert (gone.code, "minilm@canary is not registered" in gone.err) == (2, True)
    assert served("models", "remove", "minilm", "--version", "2").code == 2
    assert served("models", "alias", "minilm", "prod", "--remove").code == 0
    assert served("models", "remove", "minilm", "--yes").code == 0
    assert "no models are registered" in served("models", "list").out


def test_mistakes(served):
    for arguments in (
        ("register", "net"),
        ("register", "net", "--job", "1", "--digest", "2"),
        ("register", "net", "--job", "1", "--label", "x"),
        ("alias", "net", "prod"),
        ("alias", "net", "prod", "1", "--remove"),
        ("show", "net"),
        ("show", "No Name"),
    ):
        assert served("models", *arguments, "--json").code == 2, arguments


def test_a_webhook_is_made_asked_for_and_removed(served):
    created = served("webhook", "create", "https://hooks.example/a", "--event", "alias.moved")
    assert created.out.startswith("whsec_")
    (webhook,) = served("webhook", "list", "--json").json["webhooks"]
    assert webhook["events"] == ["alias.moved"]
    assert served("webhook", "ping", webhook["id"], "--json").json["sent"]["event"]
    assert "webhook.ping" in served("webhook", "log", webhook["id"]).out
    assert served("webhook", "delete", webhook["id"]).code == 0
    assert "no webhooks" in served("webhook", "list").out
    gone = served("webhook", "log", webhook["id"])
    assert (gone.code, "there is no webhook" in gone.err) == (2, True)
    assert served("webhook", "create", "http://hooks.example/").code == 2
