"""ghofl on a real engine: Flower carries the bytes; `message`, `secure` and `privacy` decide what is in them.

::

    server_app ─ federation ─▶ engine ══ SuperLink ══▶ SuperNode ══▶ client_app ─ answers ─▶ custody
                 (who is asked, what is kept)                        (a site's answer to a query)

`federation` and `answers` know nothing about Flower; `engine`, `server_app` and `client_app` only translate.
"""
