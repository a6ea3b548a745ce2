"""ghofl on a real engine: Flower carries the bytes, `message`, `secure` and `privacy` say what is in them.

::

    server_app ─ federation ─▶ engine ══ SuperLink ══▶ SuperNode ══▶ client_app ─ answers ─▶ site
                 (who is asked, what is kept)                        (what a site says to a query)

`federation` and `answers` know nothing of Flower; `engine`, `server_app` and `client_app` translate and nothing else.
"""
