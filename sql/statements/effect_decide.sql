-- Says whether an effect happened that was begun and never recorded: sql/functions/decide_effect_in.sql.
--
-- $1 bucket  $2 job  $3 key  $4 token  $5 whether it happened  $6 result  $7 who  $8 why
SELECT faultline.decide_effect_in($1::smallint, $2::uuid, $3::text, $4::bigint, $5::boolean, $6::bytea, $7::text, $8::text)
