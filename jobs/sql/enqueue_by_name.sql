-- One job of a kind whose declaration is not at hand: what is not given comes from what the last worker published.
SELECT background_enqueue(
           kind => CAST(%(kind)s AS text), payload => CAST(%(payload)s AS jsonb), pool => CAST(%(pool)s AS text),
           priority => CAST(%(priority)s AS integer),
           run_after => coalesce(CAST(%(run_after)s AS timestamptz), now() + CAST(%(delay)s AS interval)),
           organization_id => CAST(%(organization_id)s AS text), dedupe_key => CAST(%(dedupe_key)s AS text),
           dedupe_active => CAST(%(dedupe_active)s AS boolean), concurrency_key => CAST(%(concurrency_key)s AS text),
           trace_context => CAST(%(trace_context)s AS text))
