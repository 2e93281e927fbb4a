-- The account of connectors that go to the store themselves: it can append
-- records and keep dead letters, and read, change and delete nothing.
--
-- Once per database, by the owner of the tables after one of the services has
-- made them (the first statement needs CREATEROLE):
--   psql -v ON_ERROR_STOP=1 -f append_role.sql "$OWNERS_ADDRESS"
-- Then give it a password or a certificate: ALTER ROLE nvsentinel_connector PASSWORD '...';
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nvsentinel_connector') THEN
        CREATE ROLE nvsentinel_connector LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOINHERIT;
    END IF;
    -- The owner is a member, so that it may end the account's transactions. PUBLIC
    -- may neither make objects nor fill the disk with temporary ones.
    EXECUTE format('GRANT nvsentinel_connector TO %I', current_user);
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO nvsentinel_connector', current_database());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO nvsentinel_connector', current_schema());
END $$;

GRANT EXECUTE ON FUNCTION append_health_events(TEXT[], TEXT[]), keep_dead_letter(TEXT, TEXT, TEXT, BYTEA) TO nvsentinel_connector;

-- Defaults, for accidents. A session may set them to something else, so the
-- services end transactions of the account that are older than a minute.
ALTER ROLE nvsentinel_connector SET statement_timeout = '60s';
ALTER ROLE nvsentinel_connector SET idle_in_transaction_session_timeout = '10s';
