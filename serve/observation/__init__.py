"""What an endpoint's own figures say of its traffic, over a stretch of time. Pure."""
