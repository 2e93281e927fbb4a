-- What an account may be given that only appends: two functions that run with
-- their owner's rights, and nothing else. Everything beside the document is
-- computed here, so that nobody who may only append can choose a record's place,
-- time, transaction or status.

-- is_instant says whether a text is a time as the services write and read it.
CREATE FUNCTION is_instant(value JSONB) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_typeof(value) IS DISTINCT FROM 'string' OR value #>> '{}' !~
        '^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$' THEN
        RETURN false;
    END IF;
    PERFORM (value #>> '{}')::timestamptz;
    RETURN true;
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;

-- is_whole says whether a value is a number without a sign and a fraction.
CREATE FUNCTION is_whole(value JSONB, most NUMERIC) RETURNS BOOLEAN LANGUAGE sql AS $$
    SELECT COALESCE(jsonb_typeof(value) = 'number' AND value #>> '{}' ~ '^[0-9]{1,20}$' AND (value #>> '{}')::numeric <= most, false)
$$;

-- has_keys says whether a value is an object with these keys at least, and none
-- that a reader could take for another one: services do not tell upper from lower
-- case.
CREATE FUNCTION has_keys(value JSONB, names TEXT[]) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    IF jsonb_typeof(value) IS DISTINCT FROM 'object' THEN
        RETURN false;
    END IF;
    RETURN value ?& names
        AND (SELECT count(*) = count(DISTINCT lower(k)) AND bool_and(k ~ '^[A-Za-z]+$') FROM jsonb_object_keys(value) AS k);
END $$;

-- health_event_problem says what is wrong with a document that is to be appended;
-- NULL is nothing.
CREATE FUNCTION health_event_problem(doc JSONB) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    event JSONB := doc -> 'healthevent';
    status JSONB := doc -> 'healtheventstatus';
    part JSONB;
    name TEXT;
BEGIN
    IF NOT has_keys(doc, '{id,createdAt,revision,append,node,seq,seqepoch,healthevent,healtheventstatus,expireAt}')
        OR NOT has_keys(doc -> 'node', '{uid,providerid,systemuuid,bootid}')
        OR NOT has_keys(event, '{version,agent,componentclass,checkname,isfatal,ishealthy,message,recommendedaction,errorcode,entitiesimpacted,metadata,generatedtimestamp,nodename,quarantineoverrides,drainoverrides,processingstrategy,id,customrecommendedaction}')
        OR NOT has_keys(status, '{nodequarantined,userpodsevictionstatus,session}')
        OR NOT has_keys(status -> 'userpodsevictionstatus', '{status,message}') THEN
        RETURN 'it is not a record';
    END IF;
    FOR name, part IN SELECT * FROM jsonb_each(status - 'userpodsevictionstatus')
        UNION ALL SELECT * FROM jsonb_each(status -> 'userpodsevictionstatus') LOOP
        IF part NOT IN ('null', '""') THEN
            RETURN 'its status is not blank: ' || name;
        END IF;
    END LOOP;
    IF doc -> 'revision' <> '0' THEN
        RETURN 'its revision is not 0';
    END IF;
    IF EXISTS (SELECT FROM jsonb_each(event) AS e (k, v) WHERE jsonb_typeof(v) <> 'string' AND k IN
            ('agent', 'componentclass', 'checkname', 'message', 'recommendedaction', 'nodename', 'processingstrategy', 'id', 'customrecommendedaction'))
        OR EXISTS (SELECT FROM jsonb_each(doc -> 'node') AS e (k, v) WHERE jsonb_typeof(v) <> 'string' OR length(v #>> '{}') > 512)
        OR EXISTS (SELECT FROM unnest('{id,seqepoch,accepted}'::text[]) AS k WHERE doc ? k AND jsonb_typeof(doc -> k) <> 'string')
        OR EXISTS (SELECT FROM unnest('{isfatal,ishealthy}'::text[]) AS k WHERE jsonb_typeof(event -> k) <> 'boolean')
        OR NOT is_whole(event -> 'version', 4294967295) OR NOT is_whole(doc -> 'seq', 18446744073709551615) THEN
        RETURN 'a value has another type';
    END IF;
    IF NOT is_instant(doc -> 'createdAt') OR NOT is_instant(event -> 'generatedtimestamp')
        OR NOT (doc -> 'expireAt' = 'null' OR is_instant(doc -> 'expireAt')) THEN
        RETURN 'a time is not one';
    END IF;
    FOREACH name IN ARRAY '{quarantineoverrides,drainoverrides}'::text[] LOOP
        part := event -> name;
        IF part <> 'null' AND (NOT has_keys(part, '{force,skip}')
            OR EXISTS (SELECT FROM jsonb_each(part) AS e (k, v) WHERE jsonb_typeof(v) <> 'boolean')) THEN
            RETURN 'an override is not one';
        END IF;
    END LOOP;
    IF jsonb_typeof(event -> 'errorcode') NOT IN ('array', 'null') OR jsonb_typeof(event -> 'entitiesimpacted') NOT IN ('array', 'null')
        OR jsonb_typeof(event -> 'metadata') NOT IN ('object', 'null') THEN
        RETURN 'a list is not one';
    END IF;
    IF EXISTS (SELECT FROM jsonb_path_query(event, 'strict $.errorcode[*] ? (@.type() != "string")', '{}', true))
        OR EXISTS (SELECT FROM jsonb_path_query(event, 'strict $.metadata.* ? (@.type() != "string")', '{}', true))
        OR EXISTS (SELECT FROM jsonb_path_query(event, 'strict $.entitiesimpacted[*]', '{}', true) AS x
            WHERE NOT has_keys(x, '{entitytype,entityvalue}') OR EXISTS (SELECT FROM jsonb_each(x) AS e (k, v) WHERE jsonb_typeof(v) <> 'string')) THEN
        RETURN 'an element of a list has another type';
    END IF;
    IF jsonb_typeof(event -> 'errorcode') = 'array' AND jsonb_typeof(event -> 'entitiesimpacted') = 'array'
        AND jsonb_array_length(event -> 'errorcode') * jsonb_array_length(event -> 'entitiesimpacted') > 4096 THEN
        RETURN 'it has more than 4096 pairs of entities and codes';
    END IF;
    IF event ->> 'processingstrategy' NOT IN ('PROCESS', 'PERSIST_ONLY') THEN
        RETURN 'its processing strategy is unknown';
    END IF;
    IF event ->> 'processingstrategy' = 'PROCESS' AND doc -> 'expireAt' <> 'null' THEN
        RETURN 'a record that acts has an expiry';
    END IF;
    IF length(doc ->> 'id') NOT BETWEEN 1 AND 512 OR length(event ->> 'nodename') NOT BETWEEN 1 AND 253 THEN
        RETURN 'it has no id or no node';
    END IF;
    RETURN NULL;
END $$;

-- health_event_key is an indexed text: a long one is replaced by its hash.
CREATE FUNCTION health_event_key(value TEXT) RETURNS TEXT LANGUAGE sql AS $$
    SELECT CASE WHEN octet_length(value) <= 200 THEN value ELSE 'sha256:' || encode(sha256(convert_to(value, 'UTF8')), 'hex') END
$$;

-- append_health_events stores documents in their order, each unless its id is
-- taken, and says what is stored under each id now. digests identify the
-- documents' contents.
CREATE FUNCTION append_health_events(docs TEXT[], digests TEXT[])
RETURNS TABLE (stored_id TEXT, stored_digest TEXT, is_fresh BOOLEAN) LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    problem TEXT;
    tx BIGINT := pg_current_xact_id()::text::bigint;
    at TIMESTAMPTZ := clock_timestamp();
    batch JSONB[];
BEGIN
    IF cardinality(docs) <> cardinality(digests) OR cardinality(docs) > 4096 THEN
        RAISE 'a batch has at most 4096 records, and one digest for each' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT string_agg(format('document %s has %s bytes', n, octet_length(d)), '; ') INTO problem
        FROM unnest(docs) WITH ORDINALITY AS t (d, n) WHERE octet_length(d) > 16777216;
    IF problem IS NULL THEN
        SELECT array_agg(d::jsonb ORDER BY n) INTO batch FROM unnest(docs) WITH ORDINALITY AS t (d, n);
        SELECT string_agg(format('document %s: %s', n, p), '; ') INTO problem
            FROM unnest(batch) WITH ORDINALITY AS t (d, n), health_event_problem(d) AS p WHERE p IS NOT NULL;
    END IF;
    IF problem IS NULL AND EXISTS (SELECT FROM unnest(digests) AS d WHERE d !~ '^[0-9a-f]{64}$') THEN
        problem := 'a digest is not one';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE 'appending: %', left(problem, 1000) USING ERRCODE = 'check_violation';
    END IF;
    -- What the session says of durability counts only if it says more.
    IF current_setting('synchronous_commit') <> 'remote_apply' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_notify('nvsentinel_health_events', '');
    -- In the order of ids, as updates lock rows, so that nothing deadlocks; the
    -- places are in the order of the batch.
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT nextval('health_event_places') AS place, d AS doc, d -> 'healthevent' AS event, digest
        FROM (SELECT * FROM unnest(batch, digests) WITH ORDINALITY AS t (d, digest, n) ORDER BY n) AS ordered
    ), fresh AS (
        INSERT INTO health_events (id, append_seq, insert_tx, stored_at, digest, created_at, node, agent, strategy, is_healthy, seq, seq_epoch,
            change_tx, change_seq, changed_at, revision, session, node_quarantined, eviction, verdict, remediated, is_repaired, is_open,
            is_finished, expire_at, doc)
        SELECT doc ->> 'id', place, tx, at, digest, LEAST((doc ->> 'createdAt')::timestamptz, at), health_event_key(event ->> 'nodename'),
            event ->> 'agent', event ->> 'processingstrategy', (event -> 'ishealthy')::boolean, lpad(doc ->> 'seq', 20, '0'),
            health_event_key(doc ->> 'seqepoch'), tx, place, at, 0, '', '', '', '', 'null', false, false,
            event ->> 'processingstrategy' <> 'PROCESS', (doc ->> 'expireAt')::timestamptz,
            doc || jsonb_build_object('append', place, 'revision', 0) || CASE WHEN (doc ->> 'createdAt')::timestamptz > at
                THEN jsonb_build_object('createdAt', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) ELSE '{}' END
        FROM given ORDER BY doc ->> 'id'
        ON CONFLICT (id) DO NOTHING
        RETURNING id, digest
    )
    SELECT id, digest, true FROM fresh;
    -- A statement of its own sees the transactions that the insertion waited for.
    RETURN QUERY SELECT e.id, e.digest, false FROM health_events AS e
        WHERE e.id IN (SELECT d ->> 'id' FROM unnest(batch) AS d) AND NOT (e.insert_tx = tx AND e.stored_at = at);
END $$;

-- keep_dead_letter keeps what a connector could not store; the first letter of a
-- source and id stays.
CREATE FUNCTION keep_dead_letter(source TEXT, id TEXT, reason TEXT, body BYTEA)
RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF source <> 'platform-connectors' OR length(id) NOT BETWEEN 1 AND 512 OR length(reason) > 4096 OR octet_length(body) > 16777216 THEN
        RAISE 'this is no dead letter of a connector' USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO dead_letters VALUES (source, id, reason, body, clock_timestamp()) ON CONFLICT DO NOTHING;
END $$;

-- Nobody but the owner may call them until somebody says so, and names in them
-- mean what they mean here, whatever the caller has made.
DO $$
DECLARE
    f REGPROCEDURE;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = current_schema()::regnamespace AND p.proname IN
        ('is_instant', 'is_whole', 'has_keys', 'health_event_problem', 'health_event_key', 'append_health_events', 'keep_dead_letter') LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', f, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END $$;
