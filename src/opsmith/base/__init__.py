"""Files, the cache's folder, switches and imports: small modules that know no operator."""
