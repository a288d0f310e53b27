"""The torch API: functions with torch's signatures, written on primitives. Importing this package registers them all."""
