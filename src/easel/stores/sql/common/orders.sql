-- name: follow_account
-- Follow an account for some seconds more. Its appends are ordered from now on, but those that are running
-- now may not be, until `is_complete`. Returns no row for an account that is deleted.
insert into account_orders (account_id, followed_until)
select account_id, clock_timestamp() + make_interval(secs => :seconds)
  from accounts where account_id = :account_id and deleted_at is null
on conflict (account_id) do update set followed_until = excluded.followed_until
returning is_complete;

-- name: complete_order
-- Record that every append that ran when the account was not followed has ended. One number is skipped, so
-- that the number of a reader from before the start is too old.
update account_orders
   set is_complete = true,
       oldest_seq = case when last_seq > 0 then last_seq + 2 else oldest_seq end,
       last_seq = case when last_seq > 0 then last_seq + 1 else 0 end
 where account_id = :account_id and followed_until is not null and not is_complete;

-- name: renew_follows
-- Follow these accounts for some seconds more. Returns those that are followed; following the others ended,
-- or has not begun.
-- The rows are locked in one order, so that no deadlock occurs.
update account_orders set followed_until = clock_timestamp() + make_interval(secs => :seconds)
 where account_id in (select account_id from account_orders
                       where account_id = any(:account_ids::text[]) and is_complete
                       order by account_id
                         for update)
returning account_id;

-- name: read_orders
-- Return the bounds of the orders of these accounts.
select account_id, oldest_seq, last_seq from account_orders where account_id = any(:account_ids::text[]);

-- name: has_unordered
-- Return a row if there are appends without a number.
select 1 as found from unordered_appends where append_no > 0 order by append_no limit 1;

-- name: lock_numbering
-- Lock the numbering of appends. Returns no row if another transaction numbers them.
select 1 as locked from order_head for update skip locked;

-- name: take_unordered
-- Take the oldest appends without a number; a row has those of a transaction. Requires the lock of the
-- numbering.
delete from unordered_appends
 where ctid = any(array(select ctid from unordered_appends
                         where append_no > 0 order by append_no limit :limit))
returning append_no, appends;

-- name: lock_orders
-- Lock the orders of those of the accounts that are followed, and return their bounds.
select account_id, oldest_seq, last_seq from account_orders
 where account_id = any(:account_ids::text[]) and followed_until is not null
 order by account_id
   for update;

-- name: add_ordered
-- Store numbered appends. Requires the locks of the orders.
insert into ordered_appends (account_id, server_seq, log_type, log_id, first_seq, last_seq)
select value->>0, (value->>1)::bigint, value->>2, value->>3, (value->>4)::bigint, (value->>5)::bigint
  from json_array_elements(:appends::json) as value;

-- name: advance_orders
-- Store the bounds of orders, passed as [account_id, oldest_seq, last_seq]. Requires their locks.
update account_orders set oldest_seq = (value->>1)::bigint, last_seq = (value->>2)::bigint
  from json_array_elements(:orders::json) as value
 where account_id = any(:account_ids::text[]) and account_id = value->>0;

-- name: trim_order
-- Delete the rows before the start of an order. A row that has a later number, too, stays.
delete from ordered_appends where account_id = :account_id and server_seq < :oldest_seq;

-- name: read_order
-- Return a page of the order of an account, after a number.
select server_seq, log_type, log_id, first_seq, last_seq from ordered_appends
 where account_id = :account_id and server_seq > :cursor order by server_seq limit :limit;

-- name: end_expired_follow
-- End following one account whose follow was not renewed. One number is skipped, so that the last number of a
-- reader is then too old.
update account_orders
   set followed_until = null, is_complete = false, oldest_seq = last_seq + 2, last_seq = last_seq + 1
 where account_id = (select account_id from account_orders
                      where followed_until < clock_timestamp()
                      order by followed_until limit 1
                        for update skip locked)
returning account_id;

-- name: delete_order
-- Delete the order of an account without followers.
delete from ordered_appends where account_id = :account_id;
