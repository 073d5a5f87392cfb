"""SampleTables from columns, datasets, JSON lines, shards and file headers, decoding nothing."""
