"""Ground floor: JSON out of files that anyone may have written."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, for which a text that is nested too deep is one more that is not JSON.

    Raises:
        ValueError: the text is not JSON, or nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
