"""Renders templates with Python's jinja2: a JSON request per line in, a JSON answer per line out."""

import base64
import json
import sys

try:
    import jinja2
except ImportError:
    print(json.dumps({"jinja2": None}), flush=True)
    sys.exit(0)


def printable(value):
    if value is None or isinstance(value, (str, int, float, jinja2.Undefined)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be printed")


def quote(value):
    text = str(value)
    if "\0" in text:
        raise ValueError("NUL")
    return "'" + text.replace("'", "'\"'\"'") + "'"


def b64encode(value):
    return base64.b64encode(str(value).encode("utf-8")).decode("ascii")


def b64decode(value):
    return base64.b64decode(str(value), validate=True).decode("utf-8")


def environment_of(files):
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(files),
        undefined=jinja2.StrictUndefined,
        finalize=printable,
        keep_trailing_newline=True,
    )
    environment.filters.update(quote=quote, b64encode=b64encode, b64decode=b64decode)
    return environment


# Requests with the same files follow each other, the first one with their texts: an environment compiles each
# of them once.
last = {"files": None, "environment": None}


def render(request):
    if request.get("files", last["files"]) != last["files"]:
        last.update(files=request["files"], environment=environment_of(request["files"]))
    return last["environment"].get_template(request["name"]).render(request["data"])


print(json.dumps({"jinja2": jinja2.__version__}), flush=True)
for line in sys.stdin:
    try:
        answer = {"text": render(json.loads(line))}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
