"""Who is believed: replay, second looks, disagreements, inference."""
