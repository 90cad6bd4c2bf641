-- name: end_account
-- Keep the name of a deleted account from being given again.
insert into ended_accounts (account_id, ended_at) values (:account_id, clock_timestamp());

-- name: make_operator
-- Let a new person administer the host.
update people set is_operator = true where user_id = :user_id;

-- name: count_people
-- Count the people who are not deleted.
select count(*) as people from accounts where kind = 'person' and deleted_at is null;

-- name: list_people
-- List the people who are not deleted, also disabled ones, by name.
select p.user_id, p.display_name, p.is_operator,
       (select a.created_at from accounts a where a.account_id = p.user_id) as created_at,
       (select a.disabled_at from accounts a where a.account_id = p.user_id) as disabled_at
  from people p
 where p.user_id > :after and (select a.deleted_at is null from accounts a where a.account_id = p.user_id)
 order by p.user_id limit :limit;

-- name: lock_people
-- Lock the accounts of these people, and of all operators if one may be lost, in the order of their names and
-- before those of teams. So an admin who is being disabled is not counted as one.
select account_id from accounts
 where account_id in (select name from unnest(:user_ids::text[]) as named(name)
                       union select user_id from people where is_operator and :with_operators::boolean)
 order by account_id
   for no key update;

-- name: get_person
-- Return a person who is not deleted.
select p.user_id, p.display_name, p.is_operator, a.created_at, a.disabled_at
  from people p join accounts a on a.account_id = p.user_id
 where p.user_id = :user_id and a.deleted_at is null;

-- name: has_other_operator
-- Return whether there is another operator who is not disabled.
select 1 from people p join accounts a on a.account_id = p.user_id
 where p.user_id <> :user_id and p.is_operator and a.disabled_at is null limit 1;

-- name: disable_account
-- Disable a person, who can no longer sign in.
update accounts set disabled_at = clock_timestamp()
 where account_id = :account_id and disabled_at is null
returning account_id;

-- name: enable_person
-- Let a disabled person sign in again. Returns no row for a person who is not disabled, or deleted.
update accounts set disabled_at = null
 where account_id = :user_id and kind = 'person' and disabled_at is not null and deleted_at is null
returning account_id;

-- name: list_memberships
-- List the own account of a person, and the teams that they are in and that are not deleted.
select account_id, kind, 'admin' as role from accounts where account_id = :user_id and deleted_at is null
union all
select a.account_id, a.kind, m.role
  from team_members m join accounts a on a.account_id = m.account_id
 where m.user_id = :user_id and a.deleted_at is null
 order by account_id;

-- name: lock_team
-- Lock a team that is not deleted, so that its last admin is not removed by two transactions.
select account_id from accounts
 where account_id = :account_id and kind = 'team' and deleted_at is null
   for no key update;

-- name: lock_teams_of
-- Lock the teams of a person that are not deleted, in the order of their names.
select a.account_id from accounts a
 where a.account_id in (select m.account_id from team_members m where m.user_id = :user_id)
   and a.deleted_at is null
 order by a.account_id
   for no key update;

-- name: find_team
-- Return a team that is not deleted.
select account_id from accounts where account_id = :account_id and kind = 'team' and deleted_at is null;

-- name: list_teams
-- List the teams that are not deleted, by name, with the number of their members.
select a.account_id, a.created_at,
       (select count(*) from team_members m where m.account_id = a.account_id) as member_count
  from accounts a
 where a.account_id > :after and a.kind = 'team' and a.deleted_at is null
 order by a.account_id limit :limit;

-- name: list_members
-- List the members of a team who are not deleted, by name; of the account of a person, that person.
select * from (
  select m.user_id, p.display_name, m.role
    from team_members m join people p on p.user_id = m.user_id
    join accounts a on a.account_id = m.user_id and a.deleted_at is null
   where m.account_id = :account_id and m.user_id > :after
  union all
  select user_id, display_name, 'admin' as role from people
   where user_id = :account_id and user_id > :after) as members
 order by user_id limit :limit;

-- name: get_member
-- Return the role of a member.
select role from team_members where account_id = :account_id and user_id = :user_id;

-- name: has_other_admin
-- Return whether a team has another admin who is not disabled.
select 1 from team_members m join accounts a on a.account_id = m.user_id and a.disabled_at is null
 where m.account_id = :account_id and m.user_id <> :user_id and m.role = 'admin' limit 1;

-- name: remove_member
-- Remove a member from a team.
delete from team_members where account_id = :account_id and user_id = :user_id;

-- name: remove_memberships
-- Remove a deleted person from all teams.
delete from team_members where user_id = :user_id;

-- name: add_departure
-- Note that the runs and questions of a person in this account are still to be ended.
insert into departures (account_id, user_id, left_at) values (:account_id, :user_id, clock_timestamp())
on conflict (account_id, user_id) do update set left_at = excluded.left_at;

-- name: revoke_tokens_in
-- Revoke the tokens of a person in one account, also those of nodes and services that they made.
update tokens set revoked_at = clock_timestamp()
 where account_id = :account_id and user_id = :user_id and revoked_at is null;

-- name: revoke_tokens_of
-- Revoke the tokens of a person in all accounts.
update tokens set revoked_at = clock_timestamp() where user_id = :user_id and revoked_at is null;

-- name: remove_invitations
-- Remove the invitations of a person, also expired ones.
delete from invitations where user_id = :user_id;

-- name: add_invitation
-- Store an invitation of a person. Only its digest is known.
insert into invitations (digest, user_id, created_at, expires_at)
values (:digest, :user_id, clock_timestamp(), clock_timestamp() + make_interval(secs => :seconds));

-- name: find_invited
-- Return the person of an invitation that has not expired, unless the person is disabled.
select p.user_id, p.display_name, p.is_operator
  from invitations i join people p on p.user_id = i.user_id
  join accounts a on a.account_id = p.user_id and a.disabled_at is null
 where i.digest = :digest and i.expires_at > clock_timestamp();

-- name: take_invitation
-- Consume an invitation that has not expired. One of two concurrent requests gets it.
delete from invitations
 where digest = :digest and expires_at > clock_timestamp()
   and (select a.disabled_at is null from accounts a where a.account_id = invitations.user_id)
returning user_id;

-- name: find_password
-- Return a person who is not disabled, with the hash of their password.
select p.user_id, p.display_name, p.is_operator, p.password_hash
  from people p join accounts a on a.account_id = p.user_id and a.disabled_at is null
 where p.user_id = :user_id;

-- name: set_first_password
-- Set the password, and the display name if there is one, of an invited person.
update people set password_hash = :password_hash, display_name = coalesce(:display_name::text, display_name)
 where user_id = :user_id
returning user_id, display_name, is_operator;

-- name: replace_password
-- Replace the hash of a password, unless it was changed since it was read.
update people set password_hash = :password_hash
 where user_id = :user_id and coalesce(password_hash, '') = coalesce(:expected::text, '')
returning user_id;
