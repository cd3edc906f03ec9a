"""The embedded default: a task and a policy that come with the package, for a machine with no GPU and no model hub.

`world` makes tool-calling requests and their answers from a seed; `policy` a tiny language model that half knows how
to answer them (`resolve_model("embedded:tiny")` is the path of a normal checkpoint); `tokenizer` its tokenizer;
`smollm2` a real small model out of a registry package; `cache` keeps what was built.
"""
