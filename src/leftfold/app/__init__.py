"""What people write their jobs with."""

from leftfold.app.app import App
from leftfold.app.context import Context, CurrentJob, SyncContext, current_job
from leftfold.app.depends import Depends
from leftfold.app.handle import Handle
from leftfold.app.handler import Call, Handler

__all__ = ["App", "Call", "Context", "CurrentJob", "Depends", "Handle", "Handler", "SyncContext", "current_job"]
