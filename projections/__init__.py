"""The projections of refold."""
