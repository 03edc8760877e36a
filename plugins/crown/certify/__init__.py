"""What proves the end of a search: certificates, their check, and the traces that certificates are made of."""
