-- name: list_appenders
-- List the transactions that are appending events, or have appended and not committed yet, on all instances.
-- A statement takes this lock before its snapshot, so a later one sees which accounts are followed.
select virtualtransaction as appender from pg_locks
 where relation = 'unordered_appends'::regclass and mode = 'RowExclusiveLock'
   and database = (select oid from pg_database where datname = current_database());
