-- The account of csp-health-monitor: it keeps what cloud providers announce, and has
-- no right to the records of health events.
--
-- Once per database, by the owner of the tables after one of the services has
-- made them (the first statement needs CREATEROLE):
--   psql -v ON_ERROR_STOP=1 -f maintenance_role.sql "$OWNERS_ADDRESS"
-- Then give it a password or a certificate: ALTER ROLE nvsentinel_maintenance PASSWORD '...';
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nvsentinel_maintenance') THEN
        CREATE ROLE nvsentinel_maintenance LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOINHERIT;
    END IF;
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO nvsentinel_maintenance', current_database());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO nvsentinel_maintenance', current_schema());
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON maintenance_events, maintenance_providers TO nvsentinel_maintenance;

ALTER ROLE nvsentinel_maintenance SET statement_timeout = '60s';
ALTER ROLE nvsentinel_maintenance SET idle_in_transaction_session_timeout = '10s';
