-- name: find_identity
-- Return the person of an identity; `is_enabled` is false for one who was disabled or deleted.
select i.user_id, p.display_name, p.is_operator, a.account_id is not null as is_enabled
  from identities i
  left join people p on p.user_id = i.user_id
  left join accounts a on a.account_id = p.user_id and a.disabled_at is null
 where i.issuer = :issuer and i.subject = :subject;

-- name: add_identity
-- Give an identity to a person. Returns no row if a person has it who is not deleted. RS-76
insert into identities (issuer, subject, user_id) values (:issuer, :subject, :user_id)
on conflict (issuer, subject) do update set user_id = excluded.user_id
 where identities.user_id = excluded.user_id
    or (:replaces_deleted::boolean and not exists (
         select 1 from accounts a where a.account_id = identities.user_id and a.deleted_at is null))
returning user_id;

-- name: name_person
-- Give a display name to a person who has none.
update people set display_name = coalesce(display_name, :display_name::text) where user_id = :user_id
returning user_id, display_name, is_operator;

-- name: list_claimed_teams
-- Return the teams in which the membership of a person came from the claim.
select account_id from team_members where user_id = :user_id and from_claim;

-- name: get_claimed
-- Return the role of a member, and whether it came from the claim.
select role, from_claim from team_members where account_id = :account_id and user_id = :user_id;

-- name: set_claimed
-- Set the role of a member from the claim, after `get_claimed` under the lock of the team.
insert into team_members (account_id, user_id, role, from_claim)
values (:account_id, :user_id, :role, true)
on conflict (account_id, user_id) do update set role = excluded.role;
