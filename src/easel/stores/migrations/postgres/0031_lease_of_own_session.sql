-- A message also ends the leases of the documents of its session, whichever session the run is of. RS-79
do $$
begin
  execute replace(
    pg_get_functiondef('end_leases(text, text, text, text, text)'::regprocedure),
    'lease_session_id = for_session', 'for_session in (lease_session_id, session_id)');
end $$;
