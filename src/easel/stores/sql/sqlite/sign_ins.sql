-- name: forget_sign_ins
-- What nobody could come with any more.
delete from ended_sign_ins where forget_at < :now;

-- name: end_sign_in
-- From now on it opens nothing.
insert into ended_sign_ins (sign_in_id, user_id, forget_at)
select :sign_in_id, user_id, :forget_at from users where user_id = :user_id
on conflict (sign_in_id) do nothing;

-- name: ended_sign_ins
-- Which of these were ended.
select sign_in_id from ended_sign_ins where sign_in_id in (select value from json_each(:sign_in_ids));
