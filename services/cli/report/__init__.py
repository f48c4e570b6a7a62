"""What a run measured, as `report.json` and as one page with plots."""
