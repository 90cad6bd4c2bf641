-- name: end_sign_in
-- From now on it opens nothing. What nobody could come with any more is forgotten on the way, so the table stays as small as it can be.
with over as (delete from ended_sign_ins where forget_at < clock_timestamp())
insert into ended_sign_ins (sign_in_id, user_id, forget_at)
select :sign_in_id, user_id, clock_timestamp() + make_interval(secs => :seconds) from users where user_id = :user_id
on conflict (sign_in_id) do nothing;

-- name: ended_sign_ins
-- Which of these were ended.
select sign_in_id from ended_sign_ins where sign_in_id = any(:sign_in_ids::text[]);
