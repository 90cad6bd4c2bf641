-- name: list_turns
-- Return ended runs of a session before a run, newest first, with their messages and hidden messages.
select run_id, input_text, status, error_message, oldest_seq = 1 as has_log,
       (select m.content::text from messages m
         where m.run_id = r.run_id and m.role = 'assistant' limit 1) as answer,
       (select json_agg(json_build_array(h.follows_answer, h.content) order by h.hidden_no)::text
          from hidden_messages h where h.run_id = r.run_id) as hidden
  from runs r
 where account_id = :account_id and session_id = :session_id and finished_at is not null
   and queue_no < (select queue_no from runs where run_id = :run_id)
 order by queue_no desc limit :limit;
