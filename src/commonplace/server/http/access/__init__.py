"""Who may call: API keys, JSON web tokens, rates, and what holds while there is neither key nor token."""
