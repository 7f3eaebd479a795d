#!/usr/bin/env python3
"""Validates scenario files against scenarios/scenario.schema.json: check_schema.py FILE...

Says "skipped" and succeeds where PyYAML or jsonschema isn't installed.
"""
import json
import pathlib
import sys

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (Debian: python3-yaml python3-jsonschema)")
    sys.exit(0)


class Loader(yaml.SafeLoader):
    """YAML as orrery reads it: dates stay text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def main(files):
    schema_file = pathlib.Path(__file__).parents[2] / "scenarios" / "scenario.schema.json"
    schema = json.loads(schema_file.read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    wrong = 0
    for file in files:
        document = yaml.load(pathlib.Path(file).read_text(encoding="utf-8"), Loader)
        for error in validator.iter_errors(document):
            wrong += 1
            print(f"{file}: {'.'.join(map(str, error.absolute_path))}: {error.message}")
    # A validator that accepts everything would pass too.
    if validator.is_valid({"name": "x", "modle": "y"}):
        wrong += 1
        print("the schema accepts unknown keys")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
