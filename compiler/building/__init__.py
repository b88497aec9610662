"""Parts of a build that several of its stages share."""
