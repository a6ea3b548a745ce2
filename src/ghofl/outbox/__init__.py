"""What would leave a site: its rows, added up and packed as the recipe says."""

from ghofl.outbox.counting import Counted, Outgoing, count, outgoing
from ghofl.outbox.site_rows import Embedded, Encodable

__all__ = ["Counted", "Embedded", "Encodable", "Outgoing", "count", "outgoing"]
