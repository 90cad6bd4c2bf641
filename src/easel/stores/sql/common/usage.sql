-- name: store_counts
-- Store what this instance counts of the accounts and tokens in use.
insert into usage_counts (subject, instance_id, requests, streams, actions, expires_at)
select c->>0, :instance_id, (c->>1)::bigint, (c->>2)::integer, (c->>3)::integer,
       clock_timestamp() + make_interval(secs => :seconds)
  from json_array_elements(:usage::text::json) as c
 where true
on conflict (subject, instance_id) do update
   set requests = excluded.requests, streams = excluded.streams, actions = excluded.actions,
       expires_at = excluded.expires_at;

-- name: other_counts
-- Return what the other instances count of these accounts and tokens.
select subject, sum(requests)::bigint as requests, sum(streams)::bigint as streams,
       sum(actions)::bigint as actions
  from usage_counts
 where subject = any(:subjects::text[]) and instance_id <> :instance_id and expires_at > clock_timestamp()
 group by subject;

-- name: delete_expired_counts
-- Delete counts that no instance renewed. Rows that another transaction has locked are skipped.
delete from usage_counts
 where (subject, instance_id) in (select subject, instance_id from usage_counts
                                   where expires_at <= clock_timestamp() for update skip locked);

-- name: read_totals
-- Return the stored bytes of an account and the model tokens that it used on this day.
select stored_bytes, case when token_day = :day then model_tokens else 0 end as model_tokens
  from account_totals where account_id = :account_id;

-- name: add_model_tokens
-- Count model tokens of an account. A later day starts again.
insert into account_totals (account_id, token_day, model_tokens) values (:account_id, :day, :tokens)
on conflict (account_id) do update
   set model_tokens = excluded.model_tokens + case when account_totals.token_day >= excluded.token_day
                                                   then account_totals.model_tokens else 0 end,
       token_day = greatest(account_totals.token_day, excluded.token_day);
