"""The fictional policy, written here and made into the Word document that an insurer would have."""

from __future__ import annotations

import io

from web.demo.claims import Claim
from web.demo.failing import DemoFailed

INSURER = "Harborline Mutual Insurance Company"

TEXT = """
1. What is covered

We pay for direct physical loss by or from flood to the building and to the contents named in the schedule.
Flood means that water which is usually outside, from a river, a canal, the sea or heavy rain, covers land or
buildings that are normally dry.

2. Limits and deductible

We pay at most $250,000 for the building and $100,000 for contents in one event. The first $1,000 of each
claim, the deductible, is borne by the policyholder.

3. Basements and garages

Below the lowest floor that people live on, cover is limited to fixed machinery: boilers, water heaters,
electrical panels and their connections. Carpets, furniture and stored goods in a basement are not covered.

4. Vehicles

Vehicles are not covered, wherever they stood: the loss of a motorcycle or a car belongs under a motor policy.

5. Household contents

Furniture, floor coverings, crockery, appliances and clothing on the ground floor and above are covered at
their actual cash value: the price of a new one less wear for its age.

6. Floors and built-in parts

Wooden floors, kitchen cabinets and other parts that are fixed to the building are covered as building, at
replacement cost where the building is the policyholder's main home.

7. Duties after a loss

The policyholder tells us within 30 days of the loss, separates damaged from undamaged property, keeps what
cannot be repaired for inspection, and sends photographs and a signed list of losses.

8. Mould, money and animals

Mould that timely cleaning would have prevented, money and securities, animals, and loss of income are not
covered.

9. Fraud

We pay nothing where a policyholder has concealed or misstated a material fact on purpose.

10. Payment

We pay within 60 days after we received the signed proof of loss and agreed the amount with the policyholder.
"""
"""Headings and paragraphs in turn."""


def policy(claim: Claim) -> bytes:
    """As a DOCX: a schedule with whom and what it insures, then the sections."""
    try:
        import docx
    except ImportError:
        raise DemoFailed("python-docx is not installed; `make setup` brings it, in the group docs.") from None
    document = docx.Document()
    document.add_heading("Flood insurance policy", 0)
    document.add_paragraph(f"Issued by {INSURER}.")
    table = document.add_table(rows=0, cols=2)
    for label, value in (
        ("Policy number", claim.policy),
        ("Policyholder", claim.insured),
        ("Insured property", claim.address),
    ):
        row = table.add_row()
        row.cells[0].text, row.cells[1].text = label, value
    parts = [part.replace("\n", " ") for part in TEXT.strip().split("\n\n")]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        document.add_heading(title, 1)
        document.add_paragraph(text)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
