"""Real servers and doubles that the tests start. No product code is imported here: they judge it."""
