BEGIN TRANSACTION;
CREATE TABLE answers (
    id INTEGER PRIMARY KEY, query TEXT NOT NULL REFERENCES queries,
    portfolio TEXT NOT NULL REFERENCES portfolios, timeout REAL NOT NULL, memory INTEGER,
    cores INTEGER NOT NULL, seed INTEGER NOT NULL, device TEXT NOT NULL,
    verdict TEXT NOT NULL, verifier TEXT NOT NULL, reason TEXT NOT NULL, flags TEXT NOT NULL,
    seconds REAL NOT NULL, bound REAL, stats TEXT NOT NULL,
    witness_x BLOB, witness_y BLOB, margins TEXT NOT NULL,
    host TEXT NOT NULL, versions TEXT NOT NULL, created REAL NOT NULL
);
INSERT INTO "answers" VALUES(1,'c743fbe29234c6e0b011bee6109e64b74ee66ef9c792349f35dd04bece4768b0','168484d8568ebd0b8274c9c0dfe3d007c956cf85bfc458d9d317272afae24173',60.0,NULL,1,0,'cpu','unsat','crown','','[]',4.99881684299998596543e+00,NULL,'{"domains": 0, "by": "bounds"}',NULL,NULL,'[]','vm','{"python": "3.11.7", "verifolio": "0.1.0", "numpy": "2.4.6", "onnx": "1.23.2", "onnxruntime": "1.31.1", "torch": "2.13.0+cpu", "highspy": "1.15.1", "z3-solver": "5.4.0.0", "ray": "2.60.0"}',1.79503554550701355935e+09);
CREATE TABLE attempts (
    answer INTEGER NOT NULL REFERENCES answers ON DELETE CASCADE, position INTEGER NOT NULL,
    verifier TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL,
    peak_memory INTEGER NOT NULL, stats TEXT NOT NULL, log TEXT NOT NULL,
    PRIMARY KEY (answer, position)
);
INSERT INTO "attempts" VALUES(1,0,'crown','unsat','',4.4944966230000318319e+00,266948608,'{"domains": 0, "by": "bounds"}','');
CREATE TABLE portfolios (
    key TEXT PRIMARY KEY, name TEXT NOT NULL, tree TEXT NOT NULL
);
INSERT INTO "portfolios" VALUES('168484d8568ebd0b8274c9c0dfe3d007c956cf85bfc458d9d317272afae24173','default_few','{"sequence": [{"optional": true, "options": {}, "share": 0.8, "verifier": "crown"}, {"optional": true, "options": {}, "seconds": 5.0, "share": 0.1, "verifier": "pgd"}, {"optional": true, "options": {}, "verifier": "smooth"}, {"at_most": {"unstable": 300}, "optional": true, "options": {}, "verifier": "milp"}]}');
CREATE TABLE queries (
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, networks TEXT NOT NULL, specification TEXT NOT NULL,
    ball TEXT, shared_input INTEGER NOT NULL, labels TEXT NOT NULL
);
INSERT INTO "queries" VALUES('c743fbe29234c6e0b011bee6109e64b74ee66ef9c792349f35dd04bece4768b0','p.vnnlib','[{"path": "net.onnx", "sha256": "c7001395fdaf58db24a2b480ae6a19e1def80f5bf871bc0a07ae95ba4ee8555e"}]','898eef38ccc3dd857dc2a7c4dec48454948d75fcb1a22ba7fcf48376653c2ad0',NULL,0,'{}');
CREATE INDEX answers_by_query ON answers (query, portfolio);
COMMIT;
