"""The serving half of ranking: from a call to ranked candidates, without torch and without a server.

Handlers (in `services.ranker`) translate, the pipeline decides, engines compute.
"""
