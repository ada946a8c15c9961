"""Signs requests, so that sites can check who sent them (Web Bot Auth). `signing/README.md` has the rules.

message_signatures.py   signature bases and parameters of RFC 9421
signing_keys.py         an Ed25519 key and its public form; which key signs, and which are published
key_file.py             the file that holds the private keys
request_signer.py       the header fields that sign a request, reused for an hour; challenges of servers
key_directory.py        the public document by which a site checks signatures
"""
