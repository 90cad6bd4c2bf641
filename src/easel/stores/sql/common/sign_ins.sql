-- name: create_sign_in
-- Store the sign-in of a browser.
insert into sign_ins (sign_in_id, user_id, token_id, issuer, created_at, expires_at)
values (:sign_in_id, :user_id,
        (select token_id from tokens where token_id = :token_id and user_id = :user_id), :issuer,
        clock_timestamp(), clock_timestamp() + make_interval(secs => :seconds));

-- name: extend_sign_in
-- Extend a sign-in by a new one in the same browser. Returns no row if it has ended.
update sign_ins set expires_at = clock_timestamp() + make_interval(secs => :seconds),
                    issuer = coalesce(:issuer::text, issuer)
 where sign_in_id = :sign_in_id and user_id = :user_id and ended_at is null and expires_at > clock_timestamp()
returning sign_in_id;

-- name: delete_old_sign_ins
-- Delete the sign-ins of a person that have expired, so that the table stays small.
delete from sign_ins where user_id = :user_id and expires_at <= clock_timestamp();

-- name: signed_in
-- Return the persons of these sign-ins, with their roles in those of these teams that they are members of. A
-- sign-in ends with the token that it was made by. RS-76
select s.sign_in_id, s.user_id, p.is_operator, p.display_name, m.account_id, m.role as member_role
  from sign_ins s
  join people p on p.user_id = s.user_id
  join accounts u on u.account_id = s.user_id and u.disabled_at is null
  left join (team_members m join accounts a on a.account_id = m.account_id and a.disabled_at is null)
    on m.user_id = s.user_id and m.account_id = any(:account_ids::text[])
  left join tokens t on t.token_id = s.token_id
 where s.sign_in_id = any(:sign_in_ids::text[]) and s.ended_at is null and s.expires_at > clock_timestamp()
   and (s.token_id is null
        or (t.revoked_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())));

-- name: sign_in_issuer
-- Return the issuer by which the person of a sign-in signed in, null for another way.
select issuer from sign_ins where sign_in_id = :sign_in_id;

-- name: end_sign_in
-- End a sign-in.
update sign_ins set ended_at = clock_timestamp() where sign_in_id = :sign_in_id and ended_at is null
returning sign_in_id;

-- name: end_sign_ins
-- End the sign-ins of a person, except this one. Returns those that were open.
update sign_ins set ended_at = clock_timestamp()
 where user_id = :user_id and sign_in_id <> :kept and ended_at is null
returning sign_in_id;

-- name: signing_key
-- Return the key that signs cookies. The first instance stores its candidate; the update of an existing row
-- changes nothing and lets a concurrent instance read the stored key.
insert into server_keys (name, key) values ('signing', :candidate)
on conflict (name) do update set name = excluded.name
returning key;
