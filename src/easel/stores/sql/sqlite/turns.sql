-- name: list_turns
-- Return ended runs of a session before a run, newest first, with their messages and hidden messages.
select run_id, input_text, status, error_message, oldest_seq = 1 as has_log,
       (select m.content from messages m indexed by messages_answer_idx
         where m.run_id = r.run_id and m.role = 'assistant' limit 1) as answer,
       (select json_group_array(json_array(follows_answer, json(content)))
          from (select * from hidden_messages h where h.run_id = r.run_id order by h.hidden_no)) as hidden
  from runs r indexed by runs_session_idx
 where account_id = :account_id and session_id = :session_id and finished_at is not null
   and queue_no < (select queue_no from runs where run_id = :run_id)
 order by queue_no desc limit :limit;
