-- name: follow_account
-- Follow an account for some seconds more. Its appends are ordered from now on, but those that are running
-- now may not be, until `is_complete`.
insert into account_orders (account_id, followed_until)
values (:account_id, clock_timestamp() + make_interval(secs => :seconds))
on conflict (account_id) do update set followed_until = excluded.followed_until
returning is_complete;

-- name: complete_order
-- Record that every append that ran when the account was not followed has ended.
update account_orders set is_complete = true where account_id = :account_id and followed_until is not null;

-- name: renew_follows
-- Follow these accounts for some seconds more. Returns those that are followed; following the others ended.
-- The rows are locked in one order, so that no deadlock occurs.
update account_orders set followed_until = clock_timestamp() + make_interval(secs => :seconds)
 where account_id in (select account_id from account_orders
                       where account_id = any(:account_ids::text[]) and followed_until is not null
                       order by account_id
                         for update)
returning account_id;

-- name: read_orders
-- Return the bounds of the orders of these accounts, and whether there are appends to number.
select account_id, oldest_seq, last_seq,
       exists (select 1 from unordered_appends u where u.account_id = o.account_id) as has_unordered
  from account_orders o where account_id = any(:account_ids::text[]);

-- name: lock_order
-- Lock the order of an account and return its bounds. Returns no row if another transaction numbers its
-- appends.
select oldest_seq, last_seq from account_orders where account_id = :account_id for update skip locked;

-- name: take_unordered
-- Take the oldest appends that have no number; a row has those of a transaction. Requires the lock of the
-- order.
delete from unordered_appends
 where account_id = :account_id
   and append_no in (select append_no from unordered_appends
                      where account_id = :account_id order by append_no limit :limit)
returning append_no, appends;

-- name: add_ordered
-- Store numbered appends. Requires the lock of the order.
insert into ordered_appends (account_id, server_seq, log_type, log_id, first_seq, last_seq)
select :account_id, (value->>0)::bigint, value->>1, value->>2, (value->>3)::bigint, (value->>4)::bigint
  from json_array_elements(:appends::json) as value;

-- name: advance_order
-- Store the bounds of an order. Requires the lock of the order.
update account_orders set oldest_seq = :oldest_seq, last_seq = :last_seq where account_id = :account_id;

-- name: trim_order
-- Delete the rows before the start of an order. A row that has a later number, too, stays.
delete from ordered_appends where account_id = :account_id and server_seq < :oldest_seq;

-- name: read_order
-- Return a page of the order of an account, after a number.
select server_seq, log_type, log_id, first_seq, last_seq from ordered_appends
 where account_id = :account_id and server_seq > :cursor order by server_seq limit :limit;

-- name: end_expired_follow
-- End following one account that nobody has renewed. One number is skipped, so that a reader with the last
-- one is told that its number is too old.
update account_orders
   set followed_until = null, is_complete = false, oldest_seq = last_seq + 2, last_seq = last_seq + 1
 where account_id = (select account_id from account_orders
                      where followed_until < clock_timestamp()
                      order by followed_until limit 1
                        for update skip locked)
returning account_id;

-- name: delete_order
-- Delete the order of an account that nobody follows.
delete from ordered_appends where account_id = :account_id;

-- name: delete_unordered
-- Delete the appends of an account that nobody follows.
delete from unordered_appends where account_id = :account_id;
