-- name: list_departures
-- List departures, the first one at the beginning.
select account_id, user_id, left_at,
       extract(epoch from clock_timestamp() - left_at)::float8 as seconds
  from departures where left_at <= clock_timestamp() order by left_at limit :limit;

-- define: is_member
-- Whether the person is in the account now, and not disabled.
exists (select 1 from accounts a
         where a.account_id = :user_id and a.disabled_at is null
           and (a.account_id = :account_id
                or exists (select 1 from team_members m
                            where m.account_id = :account_id and m.user_id = :user_id)));

-- name: list_runs_to_cancel
-- List runs of a person who left: all that began before, and later ones unless the person came back. Running
-- ones first: they act with rights that the person no longer has, behind however many queued ones.
select run_id from runs
 where account_id = :account_id and started_by = :user_id and status in ('queued', 'running')
   and cancel_requested_at is null
   and (created_at <= :left_at or not
        -- include: is_member
       )
 order by status desc, queue_no
 limit :limit;

-- name: list_questions_to_end
-- List executions that wait for a confirmation and that a person who left asked for, or a program of theirs.
select event_id from executions
 where account_id = :account_id and status = 'asked'
   and :user_id in (actor->>'userId', actor->>'onBehalfOf')
   and (created_at <= :left_at or not
        -- include: is_member
       )
 limit :limit;

-- name: finish_departure
-- Remove a departure, unless the person left again since.
delete from departures where account_id = :account_id and user_id = :user_id and left_at = :left_at;
