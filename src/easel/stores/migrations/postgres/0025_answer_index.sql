-- easel: no-transaction
-- Add the index that finds the answers of earlier runs, which a run reads as its context.
create index concurrently if not exists messages_answer_idx on messages(run_id) where role = 'assistant';
