-- The API keys of servers. A key is flk_ID_SECRET; the database has its id and a hash of its secret, so that who reads
-- this table, or a backup of it, cannot use a key. It is the owner's alone: a server that asks for keys runs as a
-- member of faultline_owner. Keys are few and belong to the whole installation, so all are in bucket 0.
CREATE TABLE faultline.api_keys (
    bucket      smallint    NOT NULL,
    id          text        COLLATE "C" NOT NULL,
    name        text        NOT NULL,
    secret_hash bytea       NOT NULL,
    scopes      text[]      NOT NULL,
    -- The queues that it is bound to; NULL: all.
    queues      text[],
    created_at  timestamptz NOT NULL DEFAULT faultline.clock(),
    expires_at  timestamptz,
    revoked_at  timestamptz,
    -- To the minute, by servers.
    last_used_at timestamptz,
    PRIMARY KEY (bucket, id),
    CHECK (octet_length(id) BETWEEN 1 AND 64),
    CHECK (octet_length(name) BETWEEN 1 AND 128),
    CHECK (octet_length(secret_hash) = 32),
    CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['produce', 'work', 'read', 'admin']),
    CHECK (cardinality(queues) > 0)
);

-- What a key is good for cannot be changed later, only ended.
GRANT SELECT, INSERT, UPDATE (revoked_at, last_used_at) ON faultline.api_keys TO faultline_owner;
