BEGIN TRANSACTION;
CREATE TABLE hyperplane_attempts (
	job_id VARCHAR(64) NOT NULL, 
	step VARCHAR(256) NOT NULL, 
	chunk INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	started DOUBLE NOT NULL, 
	ended DOUBLE NOT NULL, 
	exit_code INTEGER, 
	reason TEXT NOT NULL, 
	fault VARCHAR(16) NOT NULL, 
	log TEXT NOT NULL, 
	PRIMARY KEY (job_id, step, chunk, number), 
	FOREIGN KEY(job_id) REFERENCES hyperplane_jobs (id)
);
INSERT INTO "hyperplane_attempts" VALUES('91524465-c25d-4b7c-995d-b1ec1755fb74','count',-1,1,'failed',1.79544447521707487111e+09,0.0,NULL,'','','steps/000-count/attempt-1.log');
INSERT INTO "hyperplane_attempts" VALUES('91524465-c25d-4b7c-995d-b1ec1755fb74','count',-1,2,'in progress',1.79544447521707487111e+09,0.0,NULL,'','','steps/000-count/attempt-2.log');
CREATE TABLE hyperplane_jobs (
	id VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	job_type VARCHAR(64) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	submitted DOUBLE NOT NULL, 
	started DOUBLE NOT NULL, 
	ended DOUBLE NOT NULL, 
	timeout DOUBLE NOT NULL, 
	active_timeout DOUBLE NOT NULL, 
	max_retries INTEGER NOT NULL, 
	tries INTEGER NOT NULL, 
	definition TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	machine VARCHAR(256) NOT NULL, 
	python TEXT NOT NULL, 
	runner VARCHAR(64) NOT NULL, 
	folder TEXT NOT NULL, 
	dashboard TEXT NOT NULL, 
	output TEXT, 
	schedule VARCHAR(256) NOT NULL, 
	cancelled BOOLEAN NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "hyperplane_jobs" VALUES('91524465-c25d-4b7c-995d-b1ec1755fb74','85f9d334-518d-4d87-82ca-92e914d5da32','pods','basic','in progress','',1.79544447521707487111e+09,1.79544447521707487111e+09,0.0,86400.0,86400.0,2,0,'{"name":"nightly","steps":[{"name":"count","kind":"bash","path":"count.sh","output_path":null,"kernel":null,"depends_on":[],"working_dir":null,"port":null,"chunks":null,"foreach":null,"max_parallel":null,"retries":null,"timeout":null,"resources":{"pool":null,"cores":null,"ram_gb":null,"gpus":0},"cluster":null,"env":{},"secrets":[],"output":null,"more_memory":null,"split":null,"argv":[]}],"requirements":null,"working_dir":null,"job_type":null,"root":"/fixture/place/project","warnings":[]}','{}','ada@laptop','/fixture/venv/bin/python','kubernetes','/fixture/place/pods/jobs/91524465-c25d-4b7c-995d-b1ec1755fb74','',NULL,'',0);
CREATE INDEX ix_hyperplane_jobs_machine ON hyperplane_jobs (machine);
CREATE INDEX ix_hyperplane_jobs_name ON hyperplane_jobs (name);
CREATE INDEX ix_hyperplane_jobs_status ON hyperplane_jobs (status);
COMMIT;
